"""Tables, columns and text for a terminal."""
