"""The claims of Wang, Chen and Li (DSN 2017): how they are measured, and their studies and pages."""
