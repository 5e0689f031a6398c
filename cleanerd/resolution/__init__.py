"""Which partitions there are, and by whose configuration: settings, metadata and delegations put together."""
