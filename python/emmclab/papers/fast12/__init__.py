"""The claims of Kim, Agrawal and Ungureanu (FAST 2012): how they are measured, and their study and page."""
