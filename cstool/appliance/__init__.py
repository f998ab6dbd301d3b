"""Many runs on one host, or in Slurm: `queue` keeps, starts and watches jobs, `page` shows them in a browser."""
