"""Kafka's Fetch: requests that name all they want, those of sessions, and their responses."""
