"""Pure translation between the values of the store and their bytes on media.

docs/design.md, "Bytes on media", gives every field.
"""
