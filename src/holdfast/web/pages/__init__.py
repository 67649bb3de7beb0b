"""The pages: each module has the pages and actions of one subject."""
