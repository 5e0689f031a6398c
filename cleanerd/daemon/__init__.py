"""The daemon: one asyncio process that watches log directories and cleans what is worth it."""
