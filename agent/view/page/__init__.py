"""Write the report of nights as one HTML file: what was tried, what helped, and how sure that is."""
