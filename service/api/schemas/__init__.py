"""Wire types of requests and answers, one file per noun."""
