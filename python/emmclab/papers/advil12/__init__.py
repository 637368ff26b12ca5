"""The claims of Advil (Kim and Kim, 2012): their measures, studies and pages."""
