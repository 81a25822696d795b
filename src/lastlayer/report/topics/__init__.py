"""The topics of the page that are about any study: a module each."""
