"""One run of one attempt: trained, scored and audited, each in a process of its own."""
