"""A node's configuration: `server.properties`, environment and flags, to frozen values."""
