"""What mechanisms are judged by: data, trials, metrics and peers."""
