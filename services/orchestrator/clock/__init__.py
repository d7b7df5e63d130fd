"""The time that policies, queues and answers go by: the host's own, or an emulated world's."""
