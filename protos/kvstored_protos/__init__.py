"""Generated from protos/kvstored by protos/generate.py."""
