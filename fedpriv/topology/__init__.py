"""Groups of peers for exchanges without a server."""
