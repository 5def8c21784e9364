"""Places with a capacity and a speed, and the decisions about what lies where."""
