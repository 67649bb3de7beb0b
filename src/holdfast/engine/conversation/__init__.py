"""Sessions: transcripts of messages, and questions to people."""
