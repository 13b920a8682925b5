"""Stand-ins that tests share: tiny models, servers, clouds, processes, finished runs."""
