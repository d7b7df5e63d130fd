"""Runs the five services as processes of this machine: `make up`, `make down`, `make logs`."""
