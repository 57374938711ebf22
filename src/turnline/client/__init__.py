"""What programs use: links to a hub, and the participants behind them."""
