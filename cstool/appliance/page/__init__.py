"""A page to look at: the queue of an appliance, who has which part of it, what a job is doing."""
