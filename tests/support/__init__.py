"""What several rooms of the tests share: encoders, log directories, the kernel's twin."""
