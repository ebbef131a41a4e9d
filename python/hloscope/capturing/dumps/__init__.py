"""What the compiler dumps and prints while it compiles."""
