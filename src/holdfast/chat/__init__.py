"""The door for people in a conversation: commands that the gateway answers itself."""
