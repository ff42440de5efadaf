"""`pgsr evaluate`: data, runs, results, tables and figures. Not private: it reads the truth."""
