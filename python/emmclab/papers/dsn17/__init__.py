"""The claims of Wang, Chen and Li (DSN 2017): their measures, studies and pages."""
