"""A web page for viewers: the queue of an appliance, the jobs on each part of it, the progress of a job."""
