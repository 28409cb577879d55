"""Models: routes, prices, the client that a role run talks to, and recordings of its answers."""
