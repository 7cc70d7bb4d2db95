"""Verifiers of bearer tokens: who somebody is, by what an identity provider has signed."""
