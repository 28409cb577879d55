"""In-memory and scripted doubles of the ports and of providers."""
