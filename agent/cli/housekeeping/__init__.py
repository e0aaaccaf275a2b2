"""Commands around nights: what begins a repository, what its nights take up, and what makes room."""
