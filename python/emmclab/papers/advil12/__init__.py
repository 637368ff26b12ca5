"""The claims of Advil (Kim and Kim, 2012): how they are measured, and their studies and pages."""
