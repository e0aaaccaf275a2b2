"""Where ideas come from."""
