"""What every room uses: checks of arguments, names, files, threads, progress."""
