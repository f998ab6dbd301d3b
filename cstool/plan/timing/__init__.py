"""What kernels and steps cost on the wafer, in closed form. All of it is modelled; nothing is measured."""
