"""A recorded run as one HTML file that needs no network: a debugger for the browser."""
