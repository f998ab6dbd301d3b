"""The cost of kernels and steps on the wafer, in closed form. All of it is modelled; nothing is measured."""
