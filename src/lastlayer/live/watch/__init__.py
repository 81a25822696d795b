"""What watches over a head: bets that nothing has changed, and what they say when they win."""
