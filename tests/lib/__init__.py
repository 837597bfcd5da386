"""What the themes of the suite share: real servers, and a client that speaks HTTP to the byte."""
