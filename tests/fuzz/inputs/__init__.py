"""Wrong input of all commands: it is refused in one line, or done."""
