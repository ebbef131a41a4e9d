"""What an instruction is drawn as: its kind of work, its label, its flags."""
