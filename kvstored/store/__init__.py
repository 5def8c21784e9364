"""The chunk store on devices: allocation, index, commit, plans, reads and writes."""
