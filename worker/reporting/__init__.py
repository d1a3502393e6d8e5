"""Verdicts as people look at them: what was found, put together, and the pairs behind it, for one page of HTML."""
