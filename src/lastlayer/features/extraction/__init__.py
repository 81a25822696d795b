"""From images to a features file, part by part."""
