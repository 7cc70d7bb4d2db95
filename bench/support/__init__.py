"""What every measurement needs: child processes, load, memory sampling, tables."""
