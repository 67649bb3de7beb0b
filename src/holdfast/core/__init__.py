"""What Holdfast believes: types and rules. No I/O, no SQL, no asyncio; time is an argument."""
