"""What is studied without being served: targets recorded once, answered from the record, on hardware that is priced."""
