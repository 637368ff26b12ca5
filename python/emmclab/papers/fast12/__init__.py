"""The claims of Kim, Agrawal and Ungureanu (FAST 2012): their measures, study and page."""
