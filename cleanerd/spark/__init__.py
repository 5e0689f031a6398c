"""The same three phases over a cluster; needs the extra ``cleanerd[spark]``, which nothing else imports."""
