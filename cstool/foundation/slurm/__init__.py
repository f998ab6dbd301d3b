"""A run as a batch job of Slurm: its script, the commands that hand it in and end it, and its log while it runs."""
